package ricart

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestMachineCarvalho(t *testing.T) {
	machinetest.Thorough(t)
	dmutextest.TestMachine(t, Carvalho)
}

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func FuzzMachineCarvalho(f *testing.F) { dmutextest.FuzzMachine(f, Carvalho) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

func BenchmarkMachineCarvalho(b *testing.B) { dmutextest.BenchmarkMachine(b, Carvalho) }
