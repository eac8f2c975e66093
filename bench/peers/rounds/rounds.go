// SPDX-License-Identifier: Apache-2.0

// Package rounds is what the peers in Go have in common: the words of bench-pairs, one round, and its line.
package rounds

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Words are those of the command line.
type Words struct {
	Waiters   int
	Pairs     int64
	TTL       time.Duration
	Addresses []string
	warm      time.Duration
}

// Pair acquires, calls inside, and releases.
type Pair func(inside func()) error

// As bench-pairs prints it.
type result struct {
	Pairs   int64   `json:"pairs"`
	Failed  int64   `json:"failed"`
	Inside  int64   `json:"inside_max"`
	Seconds float64 `json:"seconds"`
}

type bench struct {
	inside atomic.Int64
	left   atomic.Int64
	result result
}

// GiveUp says why there is no round.
func GiveUp(words ...any) {
	fmt.Fprintln(os.Stderr, words...)
	os.Exit(2)
}

// Read takes the command line; it gives up unless the number of addresses fits.
func Read(fits func(addresses int) bool) Words {
	waiters := flag.Int("waiters", 1, "goroutines that want the lock")
	pairs := flag.Int64("pairs", 2000, "of all of them together")
	ttlMs := flag.Int64("ttl-ms", 30000, "of a hold")
	warmMs := flag.Int64("warm-ms", 1, `the least time before "ready"`)
	flag.Parse()
	if !fits(flag.NArg()) || *waiters < 1 || *pairs < 1 {
		GiveUp("usage:", os.Args[0], "[-waiters N] [-pairs N] [-ttl-ms MS] [-warm-ms MS] HOST:PORT...")
	}
	return Words{Waiters: *waiters, Pairs: *pairs, TTL: time.Duration(*ttlMs) * time.Millisecond, Addresses: flag.Args(),
		warm: time.Duration(*warmMs) * time.Millisecond}
}

func (b *bench) enterAndLeave() {
	inside := b.inside.Add(1)
	for {
		most := atomic.LoadInt64(&b.result.Inside)
		if inside <= most || atomic.CompareAndSwapInt64(&b.result.Inside, most, inside) {
			break
		}
	}
	b.inside.Add(-1)
}

func (b *bench) takeTurns(pair Pair, done *sync.WaitGroup) {
	defer done.Done()
	for b.left.Add(-1) >= 0 {
		if err := pair(b.enterAndLeave); err != nil {
			fmt.Fprintln(os.Stderr, err)
			atomic.AddInt64(&b.result.Failed, 1)
		} else {
			atomic.AddInt64(&b.result.Pairs, 1)
		}
	}
}

// Play says "ready", waits for a line, and plays a round, in which each waiter has its own pair. It prints the result.
func Play(words Words, pairs []Pair) {
	b := bench{}
	for end := time.Now().Add(words.warm); ; { // connections are opened meanwhile
		if err := pairs[0](b.enterAndLeave); err != nil {
			GiveUp("the first acquires failed:", err)
		}
		if time.Now().After(end) {
			break
		}
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	b.result = result{}
	b.left.Store(words.Pairs)
	var done sync.WaitGroup
	done.Add(len(pairs))
	start := time.Now()
	for _, pair := range pairs {
		go b.takeTurns(pair, &done)
	}
	done.Wait()
	b.result.Seconds = time.Since(start).Seconds()
	line, err := json.Marshal(b.result)
	if err != nil {
		GiveUp(err)
	}
	fmt.Println(string(line))
}
