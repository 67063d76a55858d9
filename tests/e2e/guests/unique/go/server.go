// server PORT: answers values of every generator of Go, "name=value" pairs; those named own_ were seeded on purpose.
package main

import (
	crand "crypto/rand"
	"fmt"
	"log"
	"math/rand"
	randv2 "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

var (
	mutex     sync.Mutex
	own       = rand.New(rand.NewSource(42))
	ownChaCha = randv2.NewChaCha8([32]byte{42})
	ownPCG    = randv2.New(randv2.NewPCG(4, 2))
)

func inThreads(count int) (sum uint64) {
	// Threads that the runtime starts now seed their generators from its global one.
	var group sync.WaitGroup
	values := make([]uint64, count)
	for i := range values {
		group.Add(1)
		go func() {
			defer group.Done()
			values[i] = randv2.Uint64()
		}()
	}
	group.Wait()
	for _, value := range values {
		sum ^= value
	}
	return sum
}

func answer() string {
	mutex.Lock()
	defer mutex.Unlock()
	bytes := make([]byte, 8)
	if _, err := crand.Read(bytes); err != nil {
		log.Fatal(err)
	}
	name, err := os.MkdirTemp("", "unique")
	if err != nil {
		name = err.Error() // says which name it tried
	} else {
		os.Remove(name)
	}
	return fmt.Sprintf("pid=%d rand=%d randv2=%d perm=%s crypto=%x threads=%d temp=%s own=%d own_chacha=%d own_pcg=%d",
		os.Getpid(), rand.Int63(), randv2.Uint64(), strings.ReplaceAll(fmt.Sprint(rand.Perm(30)), " ", ","), bytes, inThreads(4), filepath.Base(name),
		own.Int63(), ownChaCha.Uint64(), ownPCG.Uint64())
}

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answer()) })
	answer()
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
