// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
)

// Same says in what else than serial number, dates, key, signature and what follows from these the second
// certificate differs from the first. It is empty for a successor.
func Same(old, successor *x509.Certificate) (differs []string) {
	note := func(equal bool, what string) {
		if !equal {
			differs = append(differs, what)
		}
	}
	note(old.Version == successor.Version, "version")
	note(bytes.Equal(old.RawSubject, successor.RawSubject), "subject")
	note(bytes.Equal(old.RawIssuer, successor.RawIssuer), "issuer")
	note(slices.EqualFunc(lasting(old), lasting(successor), func(a, b pkix.Extension) bool {
		return a.Id.Equal(b.Id) && a.Critical == b.Critical && bytes.Equal(a.Value, b.Value)
	}), "extensions")
	note(has(old, subjectKeyID) == has(successor, subjectKeyID), "subject key identifier")
	note(has(old, authorityKeyID) || !has(successor, authorityKeyID), "authority key identifier")
	note(sameKind(old, successor), "kind of key")
	return differs
}

// lasting are the extensions that are the same in each generation.
func lasting(c *x509.Certificate) []pkix.Extension {
	return slices.DeleteFunc(slices.Clone(c.Extensions), func(e pkix.Extension) bool {
		return e.Id.Equal(subjectKeyID) || e.Id.Equal(authorityKeyID) || e.Id.Equal(sctList) || e.Id.Equal(poison)
	})
}

func has(c *x509.Certificate, id []int) bool {
	return slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(id) })
}

// sameKind compares kind and size. A key of RSA that is too short may be followed by the shortest that is made.
func sameKind(old, successor *x509.Certificate) bool {
	switch a := old.PublicKey.(type) {
	case *rsa.PublicKey:
		b, ok := successor.PublicKey.(*rsa.PublicKey)
		return ok && (a.Equal(b) || max(leastRSA, a.N.BitLen()) == b.N.BitLen())
	case *ecdsa.PublicKey:
		b, ok := successor.PublicKey.(*ecdsa.PublicKey)
		return ok && a.Curve == b.Curve
	}
	return old.PublicKeyAlgorithm == successor.PublicKeyAlgorithm
}
