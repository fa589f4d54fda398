package suzukikasami

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "conversation", "cancel")
	machinetest.Scripts(t, At(3), "token-elsewhere")
}
