// SPDX-License-Identifier: Apache-2.0

// Command peer knocks at the writer's socket and says what came back: how many bytes, and how the
// connection ended. It sends a request that root or the agent would be answered.
// Tests run it as a user who must get nothing.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	conn, err := net.Dial("unix", os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, _ = conn.Write([]byte("\x00\x00\x00\x13\x01\x00\x00\x00\x0e{\"sweep\":true}"))
	b, err := io.ReadAll(conn)
	fmt.Println(len(b), "bytes,", err)
}
