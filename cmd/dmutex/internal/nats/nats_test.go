package nats

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// An error names the servers without the secrets in their URLs.
func TestServersAreNamedWithoutSecrets(t *testing.T) {
	for servers, want := range map[string]string{
		"nats://me:secret@127.0.0.1:1":                      "nats server at nats://127.0.0.1:1: nats: no servers",
		"secret@127.0.0.1:1":                                "nats server at 127.0.0.1:1: nats: no servers",
		"tls://127.0.0.1:1,nats://me:secret@secret@[::1]:1": "nats server at tls://127.0.0.1:1,nats://[::1]:1: nats: no servers",
		"nats://me:secret@[::1":                             "nats server at nats://[::1: ",
	} {
		_, err := dial(servers, "", tool.TLS{})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}
