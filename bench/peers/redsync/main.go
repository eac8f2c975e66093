// SPDX-License-Identifier: Apache-2.0

// The Go library redsync itself, on several Redis servers: the peer of libdlock's redlock. Nothing is left out; its own
// defaults are kept except two: the expiry is the bench's, and a waiter tries without limit. go-redis opens as many
// connections as it likes.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"lockladder/bench/peers/rounds"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

const name = "lock:{phone}"

func main() {
	words := rounds.Read(func(addresses int) bool { return addresses >= 3 && addresses%2 == 1 })
	var pools []redis.Pool
	for _, address := range words.Addresses {
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		if err := client.Ping(context.Background()).Err(); err != nil {
			rounds.GiveUp("redsync:", address, err)
		}
		pools = append(pools, goredis.NewPool(client))
	}
	sync := redsync.New(pools...)
	pair := func(inside func()) error {
		mutex := sync.NewMutex(name, redsync.WithExpiry(words.TTL), redsync.WithTries(math.MaxInt32))
		if err := mutex.LockContext(context.Background()); err != nil {
			return fmt.Errorf("redsync: lock: %w", err)
		}
		inside()
		if released, err := mutex.Unlock(); err != nil || !released {
			return errors.Join(errors.New("redsync: unlock: not released"), err)
		}
		return nil
	}
	pairs := make([]rounds.Pair, words.Waiters)
	for i := range pairs {
		pairs[i] = pair
	}
	rounds.Play(words, pairs)
}
