package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is wrong with a URL is said without its password. Records are tested in integration/redis.
func TestOpen(t *testing.T) {
	for url, want := range map[string]string{
		"redis://":                  "it is not redis://HOST:PORT/NAME",
		"redis://u:secret%zz@h:1":   "it is not redis://HOST:PORT/NAME",
		"redis://h:1?server=1":      `redis:// has no "server"`,
		"redis://h:1?servers=2":     "?servers=2: give 1 or an odd number",
		"redis://u:secret@a:1,b:1":  "give one server, or Sentinels",
		"redis://h:1?servers=three": "?servers=three: give 1 or an odd number",
	} {
		_, err := Open(url, time.Second)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "secret", url)
	}
	for url, group := range map[string]string{"redis://h:1": "dmutex", "rediss://u:a@b/c@h:1/locks": "locks", "redis://a:1,b:1,c:1/g?sentinel=m&servers=3": "g"} {
		b, err := Open(url, time.Second)
		require.NoError(t, err, url)
		require.Equal(t, group, b.Name)
		b.Stop()
	}
}
