package names_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/names"
)

func TestIs(t *testing.T) {
	for name, is := range map[string]bool{
		"": true, "web-2": true, "Büro 7": true, `"a" \b`: true, strings.Repeat("n", 64): true,
		"two\nlines": false, "\x1b[31m": false, "\u202eleft": false, "\xff": false, "\ufffd": false, strings.Repeat("n", 65): false,
	} {
		require.Equal(t, is, names.Is(name), "%q", name)
	}
	require.Contains(t, names.Rule, "64 bytes")
}

// The name of a process is lawful whatever its host and its program are called, and tells hosts apart.
func TestOf(t *testing.T) {
	const pod = "checkout-service-production-europe-west-canary-7d9f8b6c54-x2x4z" // as long as that of a pod can be
	for _, tt := range []struct {
		host, program string
		pid           int
		want          string
	}{
		{"web-2", "", 7, "web-2/7"},
		{"web", "server", 7, "web/server/7"},
		{"", "server", 7, "?/server/7"},
		{pod[:62], "", 1, pod[:62] + "/1"},
		{pod, "", 1, "checkout-service-production-eu..e-west-canary-7d9f8b6c54-x2x4z/1"},
		{pod, "", 4194304, "checkout-service-production..est-canary-7d9f8b6c54-x2x4z/4194304"},
		{pod, "checkout-service-production", 4194304, "checkout-service..7d9f8b6c54-x2x4z/checkout-service-pro/4194304"},
		{strings.Repeat("ü", 40), "", 1, strings.Repeat("ü", 15) + ".." + strings.Repeat("ü", 15) + "/1"},
		{"two\nlines", "", 7, "process 7"},
		{"web", "two\nlines", 7, "process 7"},
		{"\xff", "", 7, "process 7"},
	} {
		require.Equal(t, tt.want, names.Of(tt.host, tt.program, tt.pid))
		for length := range 300 {
			for _, program := range []string{tt.program, strings.Repeat("€", length%50)} {
				name := names.Of(strings.Repeat(tt.host+"h", 300)[:length], program, tt.pid)
				require.True(t, names.Is(name), "%q", name)
			}
		}
	}
}
