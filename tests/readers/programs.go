// SPDX-License-Identifier: Apache-2.0

package readers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// nobody runs what refuses a configuration of its own to root.
const nobody = 65534

// Programs are the installed OpenSSL and p11-kit, with a directory for what they read.
type Programs struct {
	dir string
}

// NewPrograms makes ready in dir, which everybody must be able to enter. The error says which program
// is missing.
func NewPrograms(dir string) (Programs, error) {
	for _, name := range []string{"openssl", "trust"} {
		if _, err := exec.LookPath(name); err != nil {
			return Programs{}, fmt.Errorf("program %s is not installed", name)
		}
	}
	p := Programs{dir: dir}
	// p11-kit takes a configuration from the user's directory if the user is not root.
	module := "module: p11-kit-trust.so\ntrust-policy: yes\nx-init-reserved: paths='" + p.path("token") + "'\n"
	for name, text := range map[string]string{
		"config/pkcs11/pkcs11.conf":          "user-config: only\n",
		"config/pkcs11/modules/trust.module": module,
		"token/anchors/bundle.crt":           "",
		"bundle.pem":                         "",
	} {
		if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
			return Programs{}, err
		}
		if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
			return Programs{}, err
		}
	}
	return p, nil
}

func (p Programs) path(name string) string { return filepath.Join(p.dir, name) }

// OpenSSL reads as SSL_CTX_load_verify_locations does: both take all of PEM_X509_INFO_read_bio.
func (p Programs) OpenSSL(ctx context.Context, data []byte) (Set, error) {
	if err := os.WriteFile(p.path("bundle.pem"), data, 0o644); err != nil {
		return nil, err
	}
	pkcs7, err := p.run(exec.CommandContext(ctx, "openssl", "crl2pkcs7", "-nocrl", "-certfile", p.path("bundle.pem")), nil)
	if err != nil {
		return nil, err
	}
	out, err := p.run(exec.CommandContext(ctx, "openssl", "pkcs7", "-print_certs"), pkcs7)
	if err != nil {
		return nil, err
	}
	return Of(blocks(out)...), nil
}

// Store reads as the OSSL_STORE of OpenSSL 3 does.
func (p Programs) Store(ctx context.Context, data []byte) (Set, error) {
	if err := os.WriteFile(p.path("bundle.pem"), data, 0o644); err != nil {
		return nil, err
	}
	out, err := p.run(exec.CommandContext(ctx, "openssl", "storeutl", "-certs", p.path("bundle.pem")), nil)
	if err != nil {
		return nil, err
	}
	return Of(blocks(out)...), nil
}

// P11Kit reads as `trust` and update-ca-trust do, from a directory of anchors. Whatever is not an
// anchor afterwards, like one that the file itself distrusts, is an error.
func (p Programs) P11Kit(ctx context.Context, data []byte) (Set, error) {
	if err := os.WriteFile(p.path("token/anchors/bundle.crt"), data, 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "trust", "dump")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+p.path("config"))
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := p.run(cmd, nil)
	if err != nil {
		return nil, err
	}
	var ders [][]byte
	for _, object := range bytes.Split(out, []byte("[p11-kit-object-v1]\n"))[1:] {
		found := blocks(object)
		switch {
		case len(found) == 0:
		case !bytes.Contains(object, []byte("\ntrusted: true\n")):
			return nil, fmt.Errorf("a certificate is no anchor")
		default:
			ders = append(ders, found...)
		}
	}
	return Of(ders...), nil
}

// run gives what cmd prints. A program that says something else beside it did not like what it read.
func (p Programs) run(cmd *exec.Cmd, in []byte) ([]byte, error) {
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &said
	if err := cmd.Run(); err != nil || said.Len() > 0 {
		return nil, fmt.Errorf("%s: %v: %.200s", filepath.Base(cmd.Path), err, said.String())
	}
	return out.Bytes(), nil
}
