package membership

import (
	"fmt"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	for _, cfg := range []*setup{
		{n: 2, rounds: 4, crashes: 2, exits: 1, clocks: false},
		{n: 3, rounds: 1, crashes: 1, exits: 0, clocks: true},
		{n: 3, rounds: 2, crashes: 1, exits: 0, clocks: true},
		{n: 3, rounds: 2, crashes: 1, exits: 1, clocks: true},
	} {
		start := time.Now()
		r := explore(cfg, 1500000)
		fmt.Printf("%+v: %d %v %s %v\n", *cfg, r.states, r.cut, r.wrong, time.Since(start))
		if r.wrong != "" {
			t.Fatal(tell(cfg, r.run))
		}
	}
}
