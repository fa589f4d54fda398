package node

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/membership"
)

// The name of a process is lawful whatever its host is called, and tells hosts apart.
func TestDefaultNames(t *testing.T) {
	const pod = "checkout-service-production-europe-west-canary-7d9f8b6c54-x2x4z" // as long as that of a pod can be
	for _, tt := range []struct {
		host string
		pid  int
		want string
	}{
		{"web-2", 7, "web-2/7"},
		{pod[:62], 1, pod[:62] + "/1"},
		{pod, 1, "checkout-service-production-eu..e-west-canary-7d9f8b6c54-x2x4z/1"},
		{pod, 4194304, "checkout-service-production..est-canary-7d9f8b6c54-x2x4z/4194304"},
		{strings.Repeat("ü", 40), 1, strings.Repeat("ü", 15) + ".." + strings.Repeat("ü", 15) + "/1"},
		{"two\nlines", 7, "process 7"},
		{"\xff", 7, "process 7"},
	} {
		require.Equal(t, tt.want, nameOf(tt.host, tt.pid))
		for length := range 300 {
			name := nameOf(strings.Repeat(tt.host, 300)[:length], tt.pid)
			require.True(t, membership.IsName(name), "%q", name)
		}
	}
}
