package tool

import (
	"errors"

	"github.com/dmutex/dmutex/store"
)

// PostgreSQL opens a record in the database of a URL, and is nil in a build without
// -tags postgres. stop closes the connections.
var PostgreSQL func(url, record string) (s store.Store, stop func(), err error)

// ErrNoPostgreSQL refuses PostgreSQL in a build without it.
var ErrNoPostgreSQL = errors.New("this dmutex was built without PostgreSQL: add -tags postgres, as in go install -tags postgres ./cmd/dmutex")
