package central

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestMachineAt(t *testing.T) { dmutextest.TestMachine(t, At(2), 4, 2, 3) }

func TestMachineWitnessed(t *testing.T) {
	dmutextest.TestMachine(t, Witnessed)
	dmutextest.TestMachine(t, Witnessed, 4, 2, 3)
}

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func FuzzMachineWitnessed(f *testing.F) { dmutextest.FuzzMachine(f, Witnessed) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }
