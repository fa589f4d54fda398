package tool

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// A Place is a path of a file or directory, a name at NATS servers, which commas separate, or the
// URL of a PostgreSQL database.
type Place struct {
	Path          string
	Servers, Name string
	Database      string
}

// UnmarshalText reads a path, or a URL such as nats://HOST:PORT/NAME.
func (p *Place) UnmarshalText(text []byte) error {
	scheme, rest, isURL := strings.Cut(string(text), "://")
	switch {
	case !isURL:
		p.Path = string(text)
	case scheme == "file":
		u, err := url.Parse(string(text))
		if err != nil {
			return err
		}
		if u.Host != "" {
			return fmt.Errorf("%q names the host %q: give a path, or file:///path with three slashes", text, u.Host)
		}
		p.Path = u.Path
	case scheme == "nats" || scheme == "tls":
		servers, name := path.Split(rest)
		servers = strings.TrimSuffix(servers, "/")
		last := strings.TrimPrefix(afterLast(servers, ","), scheme+"://")
		if servers == "" || name == "" || strings.Contains(afterLast(last, "@"), "/") {
			return fmt.Errorf("it is not %s://HOST:PORT/NAME", scheme) // the text may contain a password
		}
		p.Servers, p.Name = scheme+"://"+servers, name
	case scheme == "postgres" || scheme == "postgresql":
		p.Database = string(text)
	default:
		return fmt.Errorf("this tool has no store for %s://, only files, nats:// and postgres://: for another, write a program", scheme)
	}
	if *p == (Place{}) {
		return errors.New("give a path")
	}
	return nil
}

// afterLast returns what is after the last separator, and all if there is none.
func afterLast(s, separator string) string { return s[strings.LastIndex(s, separator)+1:] }
