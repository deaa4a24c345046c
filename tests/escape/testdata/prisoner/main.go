// SPDX-License-Identifier: Apache-2.0

// Command prisoner is the compromised agent: under the agent's unit it tries what is in the file that its
// argument names, notes how each attempt ended in /run/node-cert-agent/attempts.json, and reports that it is ready.
// It decides nothing: which attempts should have failed is for the test beside it to say.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const writer = "/run/node-cert-agent-writer.sock"

type attempt struct {
	Name string
	Do   string
	Args []string
}

// outcome is an error if the attempt failed, and what was answered.
type outcome struct {
	Name, Error, Said string
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(list string) error {
	data, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var attempts []attempt
	if err := json.Unmarshal(data, &attempts); err != nil {
		return err
	}
	var all []outcome
	for _, a := range attempts {
		o := outcome{Name: a.Name}
		said, err := try(a)
		if o.Said = said; err != nil {
			o.Error = err.Error()
		}
		all = append(all, o)
	}
	data, err = json.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile("/run/node-cert-agent/attempts.json", data, 0o644); err != nil {
		return err
	}
	conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "READY=1"); err != nil {
		return err
	}
	hang()
	return nil
}

func try(a attempt) (string, error) {
	if said, err, known := hostile(a); known {
		return said, err
	}
	switch a.Do {
	case "writer":
		return request(a.Args[0], strings.Join(a.Args[1:], ""))
	case "raw":
		b, err := hex.DecodeString(a.Args[0])
		if err != nil {
			return "", err
		}
		return exchange(writer, b)
	case "call":
		return call(a.Args)
	case "transient":
		return "", transient()
	}
	return "", system(a.Do, a.Args)
}

// request frames a request as the writer's protocol has it.
func request(text, content string) (string, error) { return exchange(writer, frame(text, content)) }

// exchange sends bytes to one of the privileged processes; its refusal is an error.
func exchange(socket string, b []byte) (string, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		_, _ = conn.Write(b)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	answer, err := io.ReadAll(conn)
	if len(answer) < 9 {
		return "", fmt.Errorf("%d bytes were answered: %v", len(answer), err)
	}
	n := binary.BigEndian.Uint32(answer[1:])
	if uint64(len(answer)) < 9+uint64(n) {
		return "", fmt.Errorf("the answer is cut off: %v", err)
	}
	var reply struct{ Error json.RawMessage }
	if err := json.Unmarshal(answer[9:9+n], &reply); err != nil {
		return "", err
	}
	if reply.Error != nil {
		return string(answer[9:]), errors.New(string(reply.Error))
	}
	return string(answer[9:]), nil
}

// call is a method call on the system bus: destination, path, interface.method, and arguments, each
// with its type in front.
func call(args []string) (string, error) {
	bus, err := dbus.ConnectSystemBus()
	if err != nil {
		return "", err
	}
	defer bus.Close()
	return callOn(bus, args)
}

func callOn(bus *dbus.Conn, args []string) (string, error) {
	var values []any
	for _, a := range args[3:] {
		kind, text, _ := strings.Cut(a, ":")
		switch kind {
		case "b":
			values = append(values, text == "true")
		case "i":
			n, _ := strconv.Atoi(text)
			values = append(values, int32(n))
		case "u":
			n, _ := strconv.Atoi(text)
			values = append(values, uint32(n))
		case "as":
			values = append(values, strings.Fields(text))
		default:
			values = append(values, text)
		}
	}
	c := bus.Object(args[0], dbus.ObjectPath(args[1])).Call(args[2], 0, values...)
	return fmt.Sprint(c.Body...), c.Err
}

// transient asks for a unit of root's that runs a program.
func transient() error {
	bus, err := dbus.ConnectSystemBus()
	if err != nil {
		return err
	}
	defer bus.Close()
	type property struct {
		Name  string
		Value dbus.Variant
	}
	type exec struct {
		Path   string
		Args   []string
		Unsafe bool
	}
	type auxiliary struct {
		Name       string
		Properties []property
	}
	start := []property{{"ExecStart", dbus.MakeVariant([]exec{{"/bin/touch",
		[]string{"touch", "/etc/kubernetes/manifests/pod.yaml"}, false}})}}
	return bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		Call("org.freedesktop.systemd1.Manager.StartTransientUnit", 0, "escape.service", "replace", start, []auxiliary{}).Err
}

// system tries what the kernel is asked for: files here, the rest in privileged.
func system(do string, args []string) error {
	switch do {
	case "write":
		f, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.WriteString(f, "escaped")
		return errors.Join(err, f.Close())
	case "read":
		_, err := os.ReadFile(args[0])
		return err
	case "mkdir":
		return os.Mkdir(args[0], 0o755)
	case "rename":
		return os.Rename(args[0], args[1])
	case "link":
		return os.Link(args[0], args[1])
	case "symlink":
		return os.Symlink(args[0], args[1])
	case "unlink":
		return os.Remove(args[0])
	case "chmod":
		return os.Chmod(args[0], 0o777)
	}
	return privileged(do, args)
}

// privileged tries what only another user, or root, may do.
func privileged(do string, args []string) error {
	number := func() int { n, _ := strconv.Atoi(args[0]); return n }
	switch do {
	case "exec":
		return syscall.Exec(args[0], args, nil)
	case "kill":
		return syscall.Kill(number(), syscall.SIGKILL)
	case "stop":
		return syscall.Kill(number(), syscall.SIGSTOP)
	case "ptrace":
		return unix.PtraceAttach(number())
	case "connect":
		conn, err := net.Dial("unix", args[0])
		if err == nil {
			conn.Close()
		}
		return err
	case "setuid":
		return syscall.Setuid(0)
	case "mount":
		return unix.Mount("none", "/tmp", "tmpfs", 0, "")
	case "unshare":
		return unix.Unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)
	case "mknod":
		return unix.Mknod(args[0], unix.S_IFBLK|0o600, 1<<8)
	case "suid":
		const file = "/run/node-cert-agent/suid"
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			return err
		}
		return errors.Join(syscall.Chmod(file, 0o4755), os.Remove(file))
	case "netlink":
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	panic("unknown attempt " + do)
}
