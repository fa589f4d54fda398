package dmutextest_test

import (
	"fmt"
	"strings"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
)

// A test replays the trace of a node in production: its machines do again what they did
// then. The second trace was tampered with.
func ExampleReplay() {
	const file = `{"dmutex":"trace","version":5,"self":2,"members":[1,2],"algorithm":"ricart 2 idle"}
{"t":1000,"do":"born","lock":"x","phase":"idle"}
{"t":1000,"do":"request","lock":"x","out":[{"kind":"REQUEST","seq":2,"to":1,"attempt":1}],"phase":"waiting"}
{"t":2000,"do":"handle","lock":"x","fence":7,"in":{"kind":"REPLY","seq":2,"from":1,"attempt":1,"fence":6},"phase":"held"}
`
	for _, text := range []string{file, strings.Replace(file, `"fence":6`, `"fence":8`, 1)} {
		t, err := trace.Read("2.trace", strings.NewReader(text))
		if err != nil {
			fmt.Println(err)
			return
		}
		done, err := dmutextest.Replay(t, ricart.New)
		fmt.Println(done.Inputs, "inputs:", err)
	}
	// Output:
	// 2 inputs: <nil>
	// 2 inputs: 2.trace:4: dmutextest: replays differently: lock "x", 1->2 REPLY attempt=1 fence=8: recorded held with fence 7, now held with fence 9
}
