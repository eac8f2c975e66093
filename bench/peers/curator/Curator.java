// SPDX-License-Identifier: Apache-2.0

import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * InterProcessMutex of Apache Curator: the peer of libdlock's zookeeper. It takes the words of bench-pairs and prints
 * the same lines. All waiters have one client, hence one session, and share one mutex, each with a thread of its own.
 */
public final class Curator {
    private static final String PATH = "/dlock/lock:{phone}";
    private static final int PATIENCE_S = 20;

    private int waiters = 1;
    private long pairs = 2000;
    private long ttlMs = 30000;
    private long warmMs = 1;
    private String servers = "";

    private InterProcessMutex mutex;
    private final AtomicLong left = new AtomicLong();
    private final AtomicLong done = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicInteger insideMax = new AtomicInteger();

    public static void main(String[] words) throws Exception {
        Curator bench = new Curator();
        bench.read(words);
        bench.play();
    }

    private static void giveUp(String why) {
        System.err.println("curator: " + why);
        System.exit(2);
    }

    private void read(String[] words) {
        int next = 0;
        try {
            for (; next < words.length && words[next].startsWith("-"); next += 2) {
                long value = Long.parseLong(words[next + 1]);
                switch (words[next]) {
                    case "-waiters" -> waiters = Math.toIntExact(value);
                    case "-pairs" -> pairs = value;
                    case "-ttl-ms" -> ttlMs = value;
                    case "-warm-ms" -> warmMs = value;
                    default -> giveUp(words[next] + " is not understood");
                }
            }
        } catch (NumberFormatException | ArithmeticException | ArrayIndexOutOfBoundsException e) {
            giveUp(words[next] + " must have a number");
        }
        for (; next < words.length; next++) {
            servers += (servers.isEmpty() ? "" : ",") + words[next];
        }
        if (servers.isEmpty() || waiters < 1 || pairs < 1) {
            giveUp("usage: curator [-waiters N] [-pairs N] [-ttl-ms MS] [-warm-ms MS] HOST:PORT...");
        }
    }

    private void pair() throws Exception {
        mutex.acquire();
        insideMax.accumulateAndGet(inside.incrementAndGet(), Math::max);
        inside.decrementAndGet();
        mutex.release();
    }

    private void takeTurns(CountDownLatch start) {
        try {
            start.await();
        } catch (InterruptedException e) {
            return;
        }
        while (left.decrementAndGet() >= 0) {
            try {
                pair();
                done.incrementAndGet();
            } catch (Exception e) {
                System.err.println("curator: " + e);
                failed.incrementAndGet();
            }
        }
    }

    private double run() throws InterruptedException {
        CountDownLatch start = new CountDownLatch(1);
        Thread[] threads = new Thread[waiters];
        for (int i = 0; i < waiters; i++) {
            threads[i] = new Thread(() -> takeTurns(start));
            threads[i].start();
        }
        long from = System.nanoTime();
        start.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        return (System.nanoTime() - from) / 1e9;
    }

    private void play() throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.builder().connectString(servers)
                .sessionTimeoutMs(Math.toIntExact(ttlMs)).retryPolicy(new ExponentialBackoffRetry(1000, 3)).build()) {
            client.start();
            if (!client.blockUntilConnected(PATIENCE_S, TimeUnit.SECONDS)) {
                giveUp(servers + " cannot be reached");
            }
            mutex = new InterProcessMutex(client, PATH);
            long end = System.nanoTime() + warmMs * 1_000_000;
            do { // Java compiles meanwhile
                pair();
            } while (System.nanoTime() < end);
            System.out.println("ready");
            System.in.read();
            insideMax.set(0);
            left.set(pairs);
            double seconds = run();
            System.out.printf(Locale.ROOT, "{\"pairs\":%d,\"failed\":%d,\"inside_max\":%d,\"seconds\":%.9f}%n", done.get(),
                    failed.get(), insideMax.get(), seconds);
        }
    }
}
