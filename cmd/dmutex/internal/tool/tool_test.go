package tool

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Progress is a line that changes on a terminal, and a line now and then
// elsewhere.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	terminal := Progress{out: &out, terminal: true}
	terminal.Live("one")
	terminal.Live("two")
	require.Equal(t, clearLine+"one"+clearLine+"two", out.String())

	out.Reset()
	file := NewProgress(&out, 1, "")
	file.Live("one")
	require.Empty(t, out.String(), "most commands are over by then")
	file.told = time.Now().Add(-TellEvery)
	file.Live("two")
	file.Live("three")
	require.Equal(t, "two\n", out.String())
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		require.Equal(t, want, Thousands(n))
	}
}
