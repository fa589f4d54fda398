package run

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A record is where the machines of a group are listed: in a file, or under a key of a
// bucket.
type record struct {
	file                 string
	servers, bucket, key string
}

// UnmarshalText reads a path or a URL. Of NATS it may name several servers, which commas
// separate.
func (r *record) UnmarshalText(text []byte) error {
	scheme, rest, isURL := strings.Cut(string(text), "://")
	switch {
	case !isURL:
		r.file = string(text)
	case scheme == "file":
		u, err := url.Parse(string(text))
		if err != nil {
			return err
		}
		if u.Host != "" {
			return fmt.Errorf("%q names the host %q: give a path, or file:///path with three slashes", text, u.Host)
		}
		r.file = u.Path
	case scheme == "nats" || scheme == "tls":
		servers, key := path.Split(rest)
		servers, bucket := path.Split(strings.TrimSuffix(servers, "/"))
		if servers == "" || bucket == "" || key == "" {
			return fmt.Errorf("it is not %s://HOST:PORT/BUCKET/KEY", scheme) // the text may contain a password
		}
		r.servers, r.bucket, r.key = scheme+"://"+strings.TrimSuffix(servers, "/"), bucket, key
	default:
		return fmt.Errorf("this tool has no store for %s://, only for files and nats://: "+
			"for another, write a program with package node", scheme)
	}
	if r.file == "" && r.key == "" {
		return errors.New("give a path")
	}
	return nil
}

// checkStore refuses what cannot be a group with a store.
func (c *Cmd) checkStore() error {
	const shortest, longest = 100 * time.Millisecond, time.Hour // of package node
	overNATS := c.Store.file == ""
	switch {
	case c.Self != dmutex.None || len(c.Member) > 0:
		return errors.New("--self and --member are not for --store, whose record lists the machines")
	case c.NATS != "":
		return errors.New("--nats and --prefix are not for --store: give --store=nats://HOST:PORT/BUCKET/KEY")
	case overNATS && tool.NATS == nil:
		return fmt.Errorf("--store: %w", tool.ErrNoNATS)
	case overNATS && (c.Listen != "" || c.Advertise != ""):
		return errors.New("--listen and --advertise are for TCP, not for a store of NATS")
	case overNATS && c.Plain:
		return errors.New("--plain is for TCP, not for a store of NATS")
	case c.Lease != 0 && (c.Lease < shortest || c.Lease > longest):
		return fmt.Errorf("--lease=%v: choose 100ms to 1h", c.Lease)
	}
	return nil
}

// lease is how long a lease lasts.
func (c *Cmd) lease() time.Duration { return cmp.Or(c.Lease, 10*time.Second) }

func (c *Cmd) connectStore(log *slog.Logger) (*tool.Meeting, error) {
	if c.Store.file == "" {
		config := c.overNATS(c.Store.servers, "dmutex."+c.Store.bucket+"."+c.Store.key, log)
		config.Bucket, config.Record = c.Store.bucket, c.Store.key
		return tool.NATS.Connect(config)
	}
	file, err := filestore.Open(c.Store.file)
	if err != nil {
		return nil, err
	}
	m, err := c.overTCP(tcplink.Config{Listen: cmp.Or(c.Listen, "127.0.0.1:0"), Advertise: c.Advertise}, log)
	if err != nil {
		return nil, err
	}
	m.Store = file
	return m, nil
}
