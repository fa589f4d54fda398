package ricart_test

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ricart"
)

func TestScripts(t *testing.T) {
	for _, file := range []string{"textbook.txt", "cancel.txt", "carried-over.txt", "misuse.txt"} {
		t.Run(file, func(t *testing.T) { dmutextest.TestScript(t, ricart.New, "testdata/"+file) })
	}
}
