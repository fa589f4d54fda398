package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
)

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
	switch {
	case c.Store.Database != "":
		return tool.PostgreSQL(c.Store.Database, recordName(c.Lock))
	case c.Store.Path == "":
		return tool.NATS.Open(tool.StoreConfig{
			URL: c.Store.Servers, Name: "dmutex run " + c.Lock, Bucket: c.Store.Name, Record: recordName(c.Lock), TLS: c.TLS,
		})
	}
	if err := os.Mkdir(c.Store.Path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	s, err = filestore.Open(filepath.Join(c.Store.Path, recordName(c.Lock)))
	return s, func() {}, err
}
