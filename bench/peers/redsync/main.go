// SPDX-License-Identifier: Apache-2.0

// The Go library redsync itself, on several Redis servers: the peer of libdlock's redlock. It takes the words of
// bench-quorum and prints the same lines. Nothing is left out; its own defaults are kept except two: the
// expiry is the bench's, and a waiter tries without limit. go-redis opens as many connections as it likes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

const name = "lock:{phone}"

// As bench-quorum prints it.
type result struct {
	Pairs   int64   `json:"pairs"`
	Failed  int64   `json:"failed"`
	Inside  int64   `json:"inside_max"`
	Seconds float64 `json:"seconds"`
}

func giveUp(words ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"redsync:"}, words...)...)
	os.Exit(2)
}

type bench struct {
	sync   *redsync.Redsync
	ttl    time.Duration
	inside atomic.Int64
	result result
}

// pair acquires and releases once. It says whether both succeeded.
func (b *bench) pair() bool {
	mutex := b.sync.NewMutex(name, redsync.WithExpiry(b.ttl), redsync.WithTries(math.MaxInt32))
	if err := mutex.LockContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "redsync: lock:", err)
		return false
	}
	inside := b.inside.Add(1)
	for {
		most := atomic.LoadInt64(&b.result.Inside)
		if inside <= most || atomic.CompareAndSwapInt64(&b.result.Inside, most, inside) {
			break
		}
	}
	b.inside.Add(-1)
	released, err := mutex.Unlock()
	if err != nil || !released {
		fmt.Fprintln(os.Stderr, "redsync: unlock:", released, err)
	}
	return err == nil && released
}

func (b *bench) turn(more func() bool, done *sync.WaitGroup) {
	defer done.Done()
	for more() {
		if b.pair() {
			atomic.AddInt64(&b.result.Pairs, 1)
		} else {
			atomic.AddInt64(&b.result.Failed, 1)
		}
	}
}

func main() {
	waiters := flag.Int("waiters", 1, "goroutines that want the lock")
	pairs := flag.Int64("pairs", 2000, "of all of them together")
	ttlMs := flag.Int64("ttl-ms", 30000, "of a hold")
	flag.Parse()
	if flag.NArg() < 3 || flag.NArg()%2 == 0 || *waiters < 1 || *pairs < 1 {
		giveUp("usage: redsync [-waiters N] [-pairs N] [-ttl-ms MS] HOST:PORT HOST:PORT HOST:PORT...")
	}
	var pools []redis.Pool
	for _, address := range flag.Args() {
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		if err := client.Ping(context.Background()).Err(); err != nil {
			giveUp(address, err)
		}
		pools = append(pools, goredis.NewPool(client))
	}
	b := bench{sync: redsync.New(pools...), ttl: time.Duration(*ttlMs) * time.Millisecond}
	if !b.pair() { // the script is loaded, the connections are open
		giveUp("the first acquire failed")
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	b.result = result{}
	var left atomic.Int64
	left.Store(*pairs)
	var done sync.WaitGroup
	done.Add(*waiters)
	start := time.Now()
	for i := 0; i < *waiters; i++ {
		go b.turn(func() bool { return left.Add(-1) >= 0 }, &done)
	}
	done.Wait()
	b.result.Seconds = time.Since(start).Seconds()
	line, err := json.Marshal(b.result)
	if err != nil {
		giveUp(err)
	}
	fmt.Println(string(line))
}
