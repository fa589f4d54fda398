package ring

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestMachineOrder(t *testing.T) { dmutextest.TestMachine(t, Order(3, 1, 2), 1, 2, 3) }

func TestMachineCirculating(t *testing.T) { dmutextest.TestMachine(t, Circulate(2)) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func FuzzMachineCirculating(f *testing.F) { dmutextest.FuzzMachine(f, Circulate(2)) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

func BenchmarkMachineCirculating(b *testing.B) { dmutextest.BenchmarkMachine(b, Circulate(2)) }
