package maekawa

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestScripts(t *testing.T) {
	everybody := rows{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}}
	machinetest.Scripts(t, With(pairs.of), "deadlock", "cancel", "carried")
	machinetest.Scripts(t, With(grid.of), "grid")
	machinetest.Scripts(t, With(everybody.of), "once")
}
