package main

import (
	"fmt"
	"log"
	"net/http"
)

func hello(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	name := r.URL.Query().Get("name")
	if name == "" {
		name = "world"
	}
	fmt.Fprintf(w, "Hello %s from Go\n", name)
}

func main() {
	http.HandleFunc("/", hello)
	log.Println("listening on 8080")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
