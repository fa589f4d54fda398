package lamport

import (
	"testing"

	"github.com/dmutex/dmutex/internal/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "conversation")
	machinetest.Scripts(t, OmitReplies, "replies-omitted")
}
