// The task benchmarks of "fairlead bench tasks" in Go: one goroutine for each fork.
//
//	tasks THREADS
//
// Prints a line of JSON for each row: the median of RUNS runs after a warm-up.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"time"
)

const runs = 7

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func pfib(n int) int {
	if n < 2 {
		return n
	}
	other := make(chan int, 1)
	go func() { other <- pfib(n - 2) }()
	x := pfib(n - 1)
	return x + <-other
}

func spawn(count int) {
	done := make(chan int, 1)
	for i := 0; i < count; i++ {
		go func() { done <- i }()
		<-done
	}
}

// A task that really suspends: it waits for a value that comes only after it has begun.
func spawnBlock(count int) {
	for i := 0; i < count; i++ {
		begun, value, done := make(chan int), make(chan int), make(chan int)
		go func() {
			begun <- 1
			done <- <-value
		}()
		<-begun
		value <- i
		<-done
	}
}

func pingPong(count int) {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for i := 0; i < count; i++ {
			pong <- <-ping
		}
	}()
	for i := 0; i < count; i++ {
		ping <- i
		<-pong
	}
}

func median(body func()) float64 {
	body()
	seconds := make([]float64, runs)
	for i := range seconds {
		start := time.Now()
		body()
		seconds[i] = time.Since(start).Seconds()
	}
	sort.Float64s(seconds)
	return seconds[runs/2]
}

func row(id string, threads int, value float64, unit string) {
	fmt.Printf("{\"peer\": \"go\", \"version\": %q, \"id\": %q, \"threads\": %d, \"value\": %.6g, \"unit\": %q}\n",
		runtime.Version(), id, threads, value, unit)
}

func main() {
	threads, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	runtime.GOMAXPROCS(threads)
	if fib(31) != pfib(31) {
		panic("pfib(31) is wrong")
	}
	row("fib31", threads, median(func() { fib(31) }), "s")
	row("pfib31", threads, median(func() { pfib(31) }), "s")
	row("spawn", threads, median(func() { spawn(200000) })/200000*1e9, "ns")
	row("spawn_block", threads, median(func() { spawnBlock(100000) })/100000*1e9, "ns")
	row("pingpong", threads, median(func() { pingPong(200000) })/200000/2*1e9, "ns")
}
