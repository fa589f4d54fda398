package lamport

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestMachineOmitReplies(t *testing.T) { dmutextest.TestMachine(t, OmitReplies) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func FuzzMachineOmitReplies(f *testing.F) { dmutextest.FuzzMachine(f, OmitReplies) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

func BenchmarkMachineOmitReplies(b *testing.B) { dmutextest.BenchmarkMachine(b, OmitReplies) }
