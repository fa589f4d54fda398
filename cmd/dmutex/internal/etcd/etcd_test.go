package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is wrong with a URL is said without its password. Records are tested in integration/etcd.
func TestOpen(t *testing.T) {
	for url, want := range map[string]string{
		"etcd://":                                 "it is not etcd://HOST:PORT/NAME",
		"etcd://u:secret%zz@h:1":                  "it is not etcd://HOST:PORT/NAME",
		"etcd://h:1?authority=ca.pem":             "etcd:// is without TLS",
		"etcds://h:1?autority=ca.pem":             `etcds:// has no "autority": only authority and cert and key may`,
		"etcds://u:secret@h:1?authority=/no/such": "/no/such",
		"etcds://h:1?cert=/no/such":               "/no/such",
	} {
		_, err := Open(url, time.Second)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "secret", url)
	}
	for url, group := range map[string]string{"etcd://a:1,b:1": "dmutex", "etcds://a:1/locks/invoices": "locks/invoices", "etcd://u:a@b/c@a:1/g/": "g"} {
		b, err := Open(url, time.Second)
		require.NoError(t, err, url)
		require.Equal(t, group, b.Name)
		b.Stop()
	}
}
