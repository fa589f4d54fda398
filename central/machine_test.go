package central_test

import (
	"testing"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, central.New) }

func TestMachineAt(t *testing.T) { dmutextest.TestMachine(t, central.At(2), 4, 2, 3) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, central.New) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, central.New) }
