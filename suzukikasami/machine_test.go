package suzukikasami

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }
