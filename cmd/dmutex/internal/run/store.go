package run

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
)

// A place is where the records of locks are: in a directory, or in a bucket.
type place struct {
	dir             string
	servers, bucket string
}

// UnmarshalText reads a path or a URL. Of NATS it may name several servers, which commas
// separate.
func (p *place) UnmarshalText(text []byte) error {
	scheme, rest, isURL := strings.Cut(string(text), "://")
	switch {
	case !isURL:
		p.dir = string(text)
	case scheme == "file":
		u, err := url.Parse(string(text))
		if err != nil {
			return err
		}
		if u.Host != "" {
			return fmt.Errorf("%q names the host %q: give a path, or file:///path with three slashes", text, u.Host)
		}
		p.dir = u.Path
	case scheme == "nats" || scheme == "tls":
		servers, bucket := path.Split(rest)
		servers = strings.TrimSuffix(servers, "/")
		last := strings.TrimPrefix(afterLast(servers, ","), scheme+"://")
		if servers == "" || bucket == "" || strings.Contains(afterLast(last, "@"), "/") {
			return fmt.Errorf("it is not %s://HOST:PORT/BUCKET", scheme) // the text may contain a password
		}
		p.servers, p.bucket = scheme+"://"+servers, bucket
	default:
		return fmt.Errorf("this tool has no store for %s://, only for directories and nats://: "+
			"for another, write a program with package storelock", scheme)
	}
	if p.dir == "" && p.bucket == "" {
		return errors.New("give a path")
	}
	return nil
}

// afterLast returns what is after the last separator, and all if there is none.
func afterLast(s, separator string) string { return s[strings.LastIndex(s, separator)+1:] }

const maxRecordName = 200

// recordName returns the name of the record of a lock, which every store takes: the letters, digits,
// - and _ of the lock's name, and =XX for all other bytes.
func recordName(lock string) string {
	var b strings.Builder
	for _, c := range []byte(lock) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// open opens the record of the lock.
func (c *Cmd) open() (s store.Store, stop func(), err error) {
	if c.Store.dir == "" {
		return tool.NATS.Open(tool.StoreConfig{
			URL: c.Store.servers, Name: "dmutex run " + c.Lock, Bucket: c.Store.bucket, Record: recordName(c.Lock),
			Cert: c.Cert, Key: c.Key, Authority: c.Authority,
		})
	}
	if err := os.Mkdir(c.Store.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	s, err = filestore.Open(filepath.Join(c.Store.dir, recordName(c.Lock)))
	return s, func() {}, err
}
