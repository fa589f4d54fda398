// Package onerequest has the HTTP client of stores: it sends each request once.
package onerequest

import (
	"crypto/tls"
	"net/http"
)

// Client returns a client that follows no redirect and speaks HTTP/1.1. A request that is not answered ends its
// connection then, so the next one makes a connection of its own; over HTTP/2 all would wait for one that is dead.
// net/http sends nothing again that may have been written: no PUT and no POST, unless not one byte of it was sent.
func Client(security *tls.Config) *http.Client {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: security, Protocols: new(http.Protocols), MaxIdleConnsPerHost: 2}
	t.Protocols.SetHTTP1(true)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
