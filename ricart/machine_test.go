package ricart

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestMachineCarvalho(t *testing.T) { dmutextest.TestMachine(t, Carvalho) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func FuzzMachineCarvalho(f *testing.F) { dmutextest.FuzzMachine(f, Carvalho) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

func BenchmarkMachineCarvalho(b *testing.B) { dmutextest.BenchmarkMachine(b, Carvalho) }
