package suzukikasami

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "conversation", "cancel")
	machinetest.Scripts(t, func(s dmutex.Start) (dmutex.Machine, error) {
		s.Home = 3
		return New(s)
	}, "token-elsewhere")
}
