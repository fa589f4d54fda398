package tool

import (
	"bytes"
	"os"
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
	require.Empty(t, out.String(), "most commands end before the first line")
	file.told = time.Now().Add(-TellEvery)
	file.Live("two")
	file.Live("three")
	require.Equal(t, "two\n", out.String())
}

// A result that could not be written is an error.
func TestMainCannotWrite(t *testing.T) {
	out, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer out.Close()
	var said bytes.Buffer
	grammar := new(struct {
		Completion Completion `cmd:""`
	})
	require.Equal(t, StatusIncomplete, Main(grammar, []string{"completion", "bash"}, &Console{Out: out, Err: &said}))
	require.Contains(t, said.String(), "dmutex: write "+os.DevNull)
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		require.Equal(t, want, Thousands(n))
	}
}

// A place is a path, a name at some servers, or the URL of a service.
func TestPlace(t *testing.T) {
	for text, want := range map[string]Place{
		"locks":                                  {Path: "locks"},
		"/var/lib/my locks":                      {Path: "/var/lib/my locks"},
		"file:///var/lib/my%20locks":             {Path: "/var/lib/my locks"},
		"nats://h:4222/b":                        {Servers: "nats://h:4222", Name: "b"},
		"tls://me:a/b@h:1,tls://i:2/bucket":      {Servers: "tls://me:a/b@h:1,tls://i:2", Name: "bucket"},
		"nats://me:a/b@h:1,nats://me:a/b@i:2/bu": {Servers: "nats://me:a/b@h:1,nats://me:a/b@i:2", Name: "bu"},
		"etcd://me:a/b@h:1":                      {URL: "etcd://me:a/b@h:1"},
		"redis://me:a@h:1/x?servers=3":           {URL: "redis://me:a@h:1/x?servers=3"},
		"postgres://h:5432/db?user=me@tenant":    {URL: "postgres://h:5432/db?user=me@tenant"},
		"postgres://h:5432?user=me@tenant":       {URL: "postgres://h:5432?user=me@tenant"},
		"postgres://h/db?user=me@tenant":         {URL: "postgres://h/db?user=me@tenant"},
	} {
		var p Place
		require.NoError(t, p.Parse(text), text)
		require.Equal(t, want, p)
	}
}

// A password that ends at a ? or # would leave its rest to what the errors show.
func TestPlaceHidesPasswords(t *testing.T) {
	for _, scheme := range []string{"nats", "tls", "redis", "rediss", "etcd", "etcds", "postgres", "postgresql"} {
		for _, password := range []string{"first?secret", "first#secret", "?secret", "#secret", "1a?secret", "a:1?secret"} {
			for _, user := range []string{"", "me"} {
				err := new(Place).Parse(scheme + "://" + user + ":" + password + "@h:1/x")
				require.ErrorContains(t, err, "%3F for a question mark", scheme)
				require.NotContains(t, err.Error(), "secret")
			}
		}
	}
}
