package lamport

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "conversation")
	machinetest.Scripts(t, OmitReplies, "replies-omitted")
}
