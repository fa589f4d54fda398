package ricart

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestCarvalhoMachine(t *testing.T) { dmutextest.TestMachine(t, Carvalho) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func FuzzCarvalho(f *testing.F) { dmutextest.FuzzMachine(f, Carvalho) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

func BenchmarkCarvalho(b *testing.B) { dmutextest.BenchmarkMachine(b, Carvalho) }
