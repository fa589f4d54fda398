package client_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/clientlink"
)

// A client has a name that members accept, whatever its host and program are called.
func TestDefaultNames(t *testing.T) {
	require.Equal(t, "web/server/7", client.NameOf("web", "server", 7))
	pod := strings.Repeat("deployment-", 5) + "7d4b9"
	require.NotEqual(t, client.NameOf(pod+"-a", "server", 1), client.NameOf(pod+"-b", "server", 1))
	for n := range 100 {
		name := client.NameOf(strings.Repeat("ü", n)+"b", strings.Repeat("€", n), 4_000_000)
		require.LessOrEqual(t, len(name), clientlink.MaxWord)
		require.True(t, utf8.ValidString(name))
		require.True(t, strings.HasSuffix(name, "/4000000"))
	}
}
