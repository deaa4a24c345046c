// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const reloader = "/run/node-cert-agent-reloader.sock"

// hostile is what only somebody who means harm does. It reports false for what it does not know.
func hostile(a attempt) (said string, err error, known bool) {
	switch a.Do {
	case "reloader":
		said, err = exchange(reloader, frame(a.Args[0], ""))
	case "repeat":
		said, err = repeat(a.Args[0], a.Args[1], a.Args[2])
	case "flood":
		said, err = flood(a.Args[0], a.Args[1])
	case "notify":
		err = send("unixgram", os.Getenv("NOTIFY_SOCKET"), []byte(a.Args[0]))
	case "store":
		err = store(a.Args[0])
	case "journal":
		err = send("unixgram", "/run/systemd/journal/socket", []byte(a.Args[0]))
	case "say":
		_, err = fmt.Fprintln(os.Stderr, a.Args[0])
	case "dial":
		err = dial(a.Args[0], a.Args[1])
	case "bus":
		said, err = callAt(a.Args[0], a.Args[1:])
	case "hang":
		hang()
	case "abstract":
		said, err = abstract()
	default:
		return "", nil, false
	}
	return said, err, true
}

func frame(text, content string) []byte {
	b := []byte{1}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(append(b, text...), content...)
}

func send(network, address string, b []byte) error {
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(b)
	return err
}

func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err == nil {
		conn.Close()
	}
	return err
}

// repeat sends a request many times on one connection and counts the replies without an error.
func repeat(socket, times, text string) (string, error) {
	n, err := strconv.Atoi(times)
	if err != nil {
		return "", err
	}
	b := frame(text, "")
	done, begun := 0, time.Now()
	var last string
	for range n {
		said, err := exchange(socket, b)
		if err == nil {
			done++
		} else {
			last = err.Error()
		}
		_ = said
	}
	return fmt.Sprintf("%d %d %s", done, int(time.Since(begun).Seconds()), last), nil
}

// flood sends on many connections at once what makes a careless server hold much: texts of many values,
// contents that belong to nothing, and announcements that are never kept.
func flood(socket, connections string) (string, error) {
	n, err := strconv.Atoi(connections)
	if err != nil {
		return "", err
	}
	var frames [][]byte
	for _, size := range []int{16 << 10, 256 << 10, 15 << 20} {
		for _, each := range []string{"{},", "1,", `{"field":"rootCAData"},`, `"reader.service",`} {
			body := strings.TrimSuffix(strings.Repeat(each, (size-40)/len(each)), ",")
			frames = append(frames, frame(`{"observe":[`+body+`]}`, ""), frame(`{"commit":{"writes":[`+body+`]}}`, ""))
		}
		frames = append(frames, frame(strings.Repeat("[", size), ""), frame(`{"sweep":true}`, strings.Repeat("x", size)))
	}
	frames = append(frames, frame(`{"sweep":true}`, strings.Repeat("x", 8<<20)))
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for _, f := range frames {
				_, _ = exchange(socket, f)
			}
		})
	}
	all.Wait()
	return "", nil
}

// store asks systemd to keep a descriptor for us, and so alive after our end.
func store(message string) error {
	conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return err
	}
	defer conn.Close()
	file, err := os.Create("/var/lib/node-cert-agent/stored")
	if err != nil {
		return err
	}
	defer file.Close()
	_, _, err = conn.(*net.UnixConn).WriteMsgUnix([]byte(message), unix.UnixRights(int(file.Fd())), nil)
	return err
}

// callAt is call on a bus at another address.
func callAt(address string, args []string) (string, error) {
	bus, err := dbus.Dial(address)
	if err != nil {
		return "", err
	}
	defer bus.Close()
	if err := bus.Auth(nil); err != nil {
		return "", err
	}
	if err := bus.Hello(); err != nil && !strings.Contains(address, "private") {
		return "", err
	}
	return callOn(bus, args)
}

// abstract looks for a bus, or anything that answers like one, behind the abstract sockets of the network that
// we share with the host. They have no permissions.
func abstract() (string, error) {
	list, err := os.Open("/proc/net/unix")
	if err != nil {
		return "", err
	}
	defer list.Close()
	var names []string
	for lines := bufio.NewScanner(list); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 8 || !strings.HasPrefix(f[7], "@") {
			continue
		}
		names = append(names, f[7])
		conn, err := net.Dial("unix", f[7])
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		_, _ = io.WriteString(conn, "\x00AUTH EXTERNAL "+fmt.Sprintf("%x", strconv.Itoa(os.Getuid()))+"\r\n")
		answer := make([]byte, 64)
		k, _ := conn.Read(answer)
		conn.Close()
		if strings.HasPrefix(string(answer[:k]), "OK") {
			return strings.Join(names, " "), nil
		}
	}
	return strings.Join(names, " "), errors.New("no abstract socket is a bus")
}

// hang is not select {}, which Go calls a deadlock.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}
