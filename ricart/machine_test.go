package ricart_test

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ricart"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, ricart.New) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, ricart.New) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, ricart.New) }
