package store

import (
	"context"
	"errors"
	"os"
)

// A Prover is a [Store], such as filestore, that can prove that a process is dead, for example
// by a lock that the operating system releases when the process dies. Then groups and
// storelock need not wait for a lease of that process to end.
//
// A process begins a [Life] and writes its name into the record. Other processes ask by that name. A proof must
// never be wrong: a process that does not answer, is stopped, or cannot be reached is not dead. Where the store can
// never tell, its methods return an error that wraps [ErrNoProof]: then a lease decides. After any other error the
// caller asks again, and takes nobody for dead meanwhile. A holder whose life the others can see keeps what it holds
// although it cannot renew its lease. So a store that may lose its records, see [ErrForgotten], is no Prover.
type Prover interface {
	Store

	// Live begins a life of this process. It is over when the process has died or has
	// closed it, and every process that inherited its File has died or closed that, too.
	Live(ctx context.Context) (Life, error)

	// Over waits until the life is over, and then returns nil. It returns an ErrNoProof at once
	// if the store does not know the life. The store must know each life at least until it
	// is over, and from then on while the record contains its name.
	Over(ctx context.Context, name string) error

	// Living returns the names of all lives that began before the call and are not over
	// when it returns. Their processes have opened the same record. A process that finds
	// no record, and no life either, knows that nobody relies on a record that was lost.
	// Where some process may rely on the record without a life, since its Live returns
	// ErrNoProof, Living returns that, too.
	//
	// A member of a group that waits for leases asks again and again, less and less often; after
	// ErrNoProof only when the record has changed or a member's life is over.
	Living(ctx context.Context) (names []string, err error)
}

// A Life is a span of the life of a process, see [Prover].
type Life interface {
	// Name returns the name, which no other life of any process has. It consists of 1 to
	// 64 ASCII letters and digits.
	Name() string

	// File returns a file that a child process may inherit. Then the life is not over
	// before the child has died, too. It is nil if that is not possible.
	File() *os.File

	// Close ends the life.
	Close() error
}

// ErrNoProof is wrapped by the errors of a [Prover] that can never tell whether a life is over.
var ErrNoProof = errors.New("store: no proof of life or death")
