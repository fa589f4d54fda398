// Command sqltable guards an SQL table by the fences of a lock.
//
// The whole guard is the condition of one UPDATE, in [write]: the database compares
// and writes in one step. It needs no server, no Gate and no transaction. A [read]
// whose result will be written back sends the fence too, so that no former holder
// writes between the two. SQLite stands for any SQL database here.
//
// The command shows the case that no lock can prevent: a holder reads, is paused,
// and writes long after an operator has declared it dead.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock/fence"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// write sets the balance of an account, unless a later holder of its lock has
// written before.
func write(ctx context.Context, db *sql.DB, account string, balance int64, f uint64) error {
	result, err := db.ExecContext(ctx,
		`UPDATE account SET balance = ?1, fence = ?2 WHERE name = ?3 AND fence <= ?2`, balance, f, account)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err == nil && changed == 0 {
		err = stale(account, f)
	}
	return err
}

// read returns the balance of an account, and makes the account refuse all
// former holders.
func read(ctx context.Context, db *sql.DB, account string, f uint64) (balance int64, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE account SET fence = ?1 WHERE name = ?2 AND fence <= ?1 RETURNING balance`, f, account).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		err = stale(account, f)
	}
	return balance, err
}

// look returns the balance for information only.
func look(ctx context.Context, db *sql.DB, account string) (balance int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT balance FROM account WHERE name = ?`, account).Scan(&balance)
	return balance, err
}

// stale says that no account of that name takes the fence.
func stale(account string, f uint64) error {
	return fmt.Errorf("account %s refuses fence %d: %w", account, f, fence.ErrStale)
}

// highest returns the highest fence that the table has seen. As the Config.Fence of a
// new group it makes the group's fences higher than those of all former holders.
func highest(ctx context.Context, db *sql.DB) (f uint64, err error) {
	err = db.QueryRowContext(ctx, `SELECT max(fence) FROM account`).Scan(&f)
	return f, err
}

func create(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `
		CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
		INSERT INTO account VALUES ('alice', 100, 0)`)
	return db, err
}

// openGroup starts a group of two nodes, which in production are two processes.
func openGroup(ctx context.Context, last uint64) (one, two *node.Node) {
	network, err := memlink.New(memlink.Config{})
	check(err)
	open := func(self dmutex.NodeID) *node.Node {
		n, err := node.OpenStrict(ctx, self, []dmutex.NodeID{1, 2}, network.Link(self), node.Config{
			Algorithm: ricart.New, Fence: last,
		})
		check(err)
		return n
	}
	return open(1), open(2)
}

// kill ends a node without an orderly close.
func kill(n *node.Node) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Close(ctx)
}

func main() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sqltable")
	check(err)
	defer os.RemoveAll(dir)
	db, err := create(ctx, filepath.Join(dir, "bank.db"))
	check(err)
	defer db.Close()

	one, two := openGroup(ctx, 0)
	held, err := one.Mutex("alice").Acquire(ctx)
	check(err)
	balance, err := read(ctx, db, "alice", held.Fence())
	check(err)
	fmt.Println("node 1 holds the lock and reads", balance)
	wake, done := make(chan struct{}), make(chan error)
	go func() { // the rest of node 1's work
		<-wake // its machine hangs here
		done <- write(ctx, db, "alice", balance+50, held.Fence())
	}()

	kill(two) // and the operator believes that node 1 is dead too
	last, err := highest(ctx, db)
	check(err)
	newOne, newTwo := openGroup(ctx, last)
	check(newTwo.Mutex("alice").Do(ctx, func(ctx context.Context, f uint64) error {
		balance, err := read(ctx, db, "alice", f)
		if err != nil {
			return err
		}
		fmt.Println("node 2 of the new group has a higher fence:", f > held.Fence())
		fmt.Println("it writes", balance+10)
		return write(ctx, db, "alice", balance+10, f)
	}))

	close(wake)
	refusal := <-done
	fmt.Println("node 1 wakes up; its handle has no error:", held.Err() == nil)
	fmt.Println("but the table refuses the write:", errors.Is(refusal, fence.ErrStale))
	balance, err = look(ctx, db, "alice")
	check(err)
	fmt.Println("the balance is", balance)

	kill(one)
	kill(newOne)
	kill(newTwo)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
