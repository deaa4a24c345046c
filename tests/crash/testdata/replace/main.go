// SPDX-License-Identifier: Apache-2.0

// Command replace does to the pair etc/a.crt and etc/a.key in a directory what the signer does, so that a test can kill it
// at every system call. Its arguments are words and, last, the directory: "renew" puts the new pair in the place of the old
// one, "restore" puts the old one back, "keep" keeps the new one; with none of them it only recovers. It begins with
// recovery, as each signer does, and prints whether a pair waits for proof.
//
// It exits with 1 and one line on stderr if that fails.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/renew/replace"
)

func init() {
	// strace counts system calls by thread.
	runtime.LockOSThread()
}

func main() {
	if err := run(os.Args[1:len(os.Args)-1], os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string, dir string) error {
	tree, err := disk.Open(dir)
	if err != nil {
		return err
	}
	state, err := tree.Directory("/state")
	if err != nil {
		return err
	}
	r, err := replace.Open(tree, state)
	if err != nil {
		return err
	}
	defer r.Close()
	pair := replace.Pair{ID: "a", Key: "/etc/a.key", Certificate: "/etc/a.crt"}
	if _, err := r.Recover(pair); err != nil {
		return err
	}
	for _, word := range words {
		switch word {
		case "renew":
			err = renew(r, pair)
		case "restore":
			err = r.Restore(pair.ID, r.Waiting().Leaf)
		case "keep":
			err = r.Keep(pair.ID, r.Waiting().Leaf)
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("waiting:", r.Waiting().Pair.ID)
	return nil
}

func renew(r *replace.Replacer, p replace.Pair) error {
	old, err := r.Read(p)
	if err != nil {
		return err
	}
	return r.Replace(p, old.Digests(), replace.Content{Certificate: []byte("new leaf\n"), Key: secret.New([]byte("new key\n"))})
}
