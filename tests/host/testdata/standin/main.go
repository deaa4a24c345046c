// SPDX-License-Identifier: Apache-2.0

// Command standin takes the place of /usr/bin/node-cert-agent to try the units from inside: under
// the command lines of the units it does whatever it is asked to over a socket and answers with the
// outcome.
//
//	standin run                        as the agent: READY=1, then answers on /run/node-cert-agent/probe.sock
//	standin writer, standin reloader   as these: answers on the socket that systemd passed
//	standin extend                     as an agent that puts off its READY=1 for ever
//	standin ask SOCKET REQUEST...      asks one of the first three
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const probeSocket = "/run/node-cert-agent/probe.sock"

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "run":
		err = run()
	case len(args) == 1 && args[0] == "extend":
		err = extend()
	case len(args) == 1 && (args[0] == "writer" || args[0] == "reloader"):
		fmt.Fprintln(os.Stderr, args[0], "started")
		var l net.Listener
		if l, err = net.FileListener(os.NewFile(3, "listener")); err == nil {
			err = serve(l)
		}
	case len(args) >= 3 && args[0] == "ask":
		err = ask(args[1], strings.Join(args[2:], " "))
	case len(args) == 1 && args[0] == "true":
	default:
		err = fmt.Errorf("unknown arguments %q", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

func run() error {
	_ = os.Remove(probeSocket)
	l, err := net.Listen("unix", probeSocket)
	if err != nil {
		return err
	}
	notify, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return err
	}
	if _, err := io.WriteString(notify, "READY=1\nSTATUS=standing in"); err != nil {
		return err
	}
	return serve(l)
}

func extend() error {
	notify, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return err
	}
	for {
		if _, err := io.WriteString(notify, "EXTEND_TIMEOUT_USEC=3600000000\nSTATUS=never ready"); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

func serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		request := strings.Fields(line)
		answer := "ok"
		if len(request) == 2 && request[0] == "exit" {
			os.Exit(7)
		}
		if len(request) == 1 && request[0] == "peer" {
			answer = peer(c.(*net.UnixConn))
		} else if err := do(request); err != nil {
			answer = err.Error()
		}
		fmt.Fprintf(os.Stderr, "asked %q: %s\n", strings.Join(request, " "), answer)
		fmt.Fprintln(c, answer)
		c.Close()
	}
}

func peer(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	var answer string
	raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if answer = fmt.Sprint(err); err == nil {
			answer = fmt.Sprintf("uid=%d gid=%d", cred.Uid, cred.Gid)
		}
	})
	return answer
}

// do tries one thing: a verb and its object.
func do(request []string) error {
	if len(request) != 2 {
		return fmt.Errorf("want a verb and an object, have %q", request)
	}
	verb, object := request[0], request[1]
	switch verb {
	case "write":
		return write(object, []byte("written\n"))
	case "suid":
		return errors.Join(write(object, nil), os.Chmod(object, 0o755|os.ModeSetuid))
	case "chmod":
		return os.Chmod(object, 0o644)
	case "chown":
		return errors.Join(write(object, nil), os.Chown(object, 1, 1))
	case "remove":
		return os.Remove(object)
	case "read":
		_, err := os.ReadFile(object)
		return err
	case "list":
		_, err := os.ReadDir(object)
		return err
	}
	return reach(verb, object)
}

// reach tries what leads out of the files that the process may touch.
func reach(verb, object string) error {
	switch verb {
	case "socket":
		family := map[string]int{"inet": unix.AF_INET, "inet6": unix.AF_INET6, "unix": unix.AF_UNIX,
			"netlink": unix.AF_NETLINK, "packet": unix.AF_PACKET}[object]
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	case "dial":
		c, err := net.DialTimeout("tcp", object, 2*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	case "connect":
		c, err := net.Dial("unix", object)
		if err == nil {
			c.Close()
		}
		return err
	case "exec":
		return exec.Command(object).Run()
	case "runcopy": // of ourselves, from the directory object
		return runCopy(filepath.Join(object, "copy"))
	case "mount":
		return unix.Mount("none", object, "tmpfs", 0, "")
	case "unshare":
		return unix.Unshare(unix.CLONE_NEWNS)
	case "setuid":
		return syscall.Setuid(0)
	case "iouring":
		var params [120]byte
		_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
	return fmt.Errorf("unknown verb %q", verb)
}

// write makes a file as the writer does: a temporary one in the same directory, then a rename.
func write(name string, data []byte) error {
	tmp := filepath.Join(filepath.Dir(name), ".standin")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, name)
	}
	return err
}

func runCopy(name string) error {
	b, err := os.ReadFile("/usr/bin/node-cert-agent")
	if err != nil {
		return err
	}
	if err := write(name, b); err != nil {
		return err
	}
	if err := os.Chmod(name, 0o755); err != nil {
		return err
	}
	return exec.Command(name, "true").Run()
}

func ask(socket, request string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	fmt.Fprintln(c, request)
	answer, err := io.ReadAll(c)
	fmt.Print(string(answer))
	return err
}
