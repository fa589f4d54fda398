package maekawa

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) {
	dmutextest.TestMachine(t, New)
	t.Run("others", func(t *testing.T) {
		dmutextest.TestMachine(t, With(others.of), dmutextest.Nodes(3)...)
	})
}

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }
