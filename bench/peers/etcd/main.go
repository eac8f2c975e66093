// SPDX-License-Identifier: Apache-2.0

// etcd's own client in Go, with Session and Mutex of its package concurrency: the peer of libdlock's etcd. All waiters
// have one client, which has one connection. Each has a Session, hence a lease, because the key of a Mutex is named
// after the lease: two mutexes of one session would both be had. The leases are there before the round begins.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockladder/bench/peers/rounds"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	name     = "/dlock/lock:{phone}"
	patience = 20 * time.Second
	second   = time.Second
)

// pairOf is a waiter with a session of its own.
func pairOf(session *concurrency.Session) rounds.Pair {
	mutex := concurrency.NewMutex(session, name)
	return func(inside func()) error {
		if err := mutex.Lock(context.Background()); err != nil {
			return fmt.Errorf("etcd: lock: %w", err)
		}
		inside()
		if err := mutex.Unlock(context.Background()); err != nil {
			return fmt.Errorf("etcd: unlock: %w", err)
		}
		return nil
	}
}

func main() {
	words := rounds.Read(func(addresses int) bool { return addresses >= 1 })
	client, err := clientv3.New(clientv3.Config{Endpoints: words.Addresses, DialTimeout: patience})
	if err != nil {
		rounds.GiveUp("etcd:", err)
	}
	ttl := int((words.TTL + second - 1) / second)
	var sessions []*concurrency.Session
	pairs := make([]rounds.Pair, words.Waiters)
	for i := range pairs {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
		if err != nil {
			rounds.GiveUp("etcd: session:", err)
		}
		sessions = append(sessions, session)
		pairs[i] = pairOf(session)
	}
	rounds.Play(words, pairs)
	var failed error
	for _, session := range sessions { // it revokes the lease
		failed = errors.Join(failed, session.Close())
	}
	if failed = errors.Join(failed, client.Close()); failed != nil {
		rounds.GiveUp("etcd: close:", failed)
	}
}
