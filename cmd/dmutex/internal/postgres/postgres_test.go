package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Errors say what is wrong and do not quote the password. Records are tested in integration/postgres.
func TestOpenRefuses(t *testing.T) {
	for url, words := range map[string]string{
		"postgres://u:secret@127.0.0.1:1/d": "127.0.0.1:1",
		"postgres://u:secret@h:port/d":      "invalid port",
	} {
		_, _, err := Open(url, "l")
		require.ErrorContains(t, err, words)
		require.NotContains(t, err.Error(), "secret")
	}
}
