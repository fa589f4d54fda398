package central

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestMachineAt(t *testing.T) { dmutextest.TestMachine(t, At(2), 4, 2, 3) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }
