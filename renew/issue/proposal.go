// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"crypto"
	"crypto/sha1" //nolint:gosec // for an identifier, see keyID
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"slices"
	"time"
)

const (
	// backdate is for servers whose clock is a little behind.
	backdate = 5 * time.Minute
	// year bounds a lifetime that is kept: etcdadm's leaves begin with their CA, so that what their dates say of
	// their life grows with each renewal. It is kubeadm's, constants.CertificateValidityPeriod.
	year = 365 * 24 * time.Hour
)

var (
	subjectKeyID   = asn1.ObjectIdentifier{2, 5, 29, 14}
	authorityKeyID = asn1.ObjectIdentifier{2, 5, 29, 35}
	sctList        = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}
	poison         = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 3}
)

// proposal is a successor before it is signed.
type proposal struct {
	old, ca  *x509.Certificate
	now      time.Time
	lifetime time.Duration
}

// dates are those of the successor, to the second, and never outside the CA's own.
func (p proposal) dates() (from, to time.Time) {
	life, since := p.lifetime, p.now
	from = p.now.Add(-backdate)
	if life == 0 {
		life = p.old.NotAfter.Sub(p.old.NotBefore)
		if life < year { // from its begin on, or each successor would live a little longer than the one before
			from = p.now.Add(-min(backdate, life/10))
			since = from
		}
		life = min(life, year)
	}
	if from.Before(p.ca.NotBefore) {
		from = p.ca.NotBefore
	}
	to = since.Add(life)
	if to.After(p.ca.NotAfter) {
		to = p.ca.NotAfter
	}
	return from.UTC().Truncate(time.Second), to.UTC().Truncate(time.Second)
}

// check says why there can be no successor.
func (p proposal) check() error {
	_, to := p.dates()
	switch {
	case p.old.IsCA || p.old.KeyUsage&x509.KeyUsageCertSign != 0:
		return refuse(IsCA, "%q", p.old.Subject)
	case p.old.Version != 3:
		return refuse(Unreadable, "certificate is of version %d, want 3", p.old.Version)
	case p.now.Before(p.old.NotBefore):
		return refuse(ClockBehind, "it is %s, and the certificate begins at %s", said(p.now), said(p.old.NotBefore))
	case p.now.Before(p.ca.NotBefore):
		return refuse(ClockBehind, "it is %s, and the CA begins at %s", said(p.now), said(p.ca.NotBefore))
	case !p.now.Before(p.ca.NotAfter):
		return refuse(CAOver, "at %s", said(p.ca.NotAfter))
	case !to.After(p.old.NotAfter) && to.Equal(p.ca.NotAfter):
		return refuse(NoGain, "the CA ends at %s, the certificate at %s", said(to), said(p.old.NotAfter))
	case !to.After(p.old.NotAfter) || !to.After(p.now):
		return refuse(NoGain, "it would end at %s, the certificate at %s", said(to), said(p.old.NotAfter))
	}
	return nil
}

func said(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// sign returns the successor as DER. Its serial number is of 20 random bytes, less the bits that keep it
// positive: the library makes it if the template has none.
func (p proposal) sign(pub crypto.PublicKey, ca crypto.Signer, random io.Reader) ([]byte, error) {
	from, to := p.dates()
	t := &x509.Certificate{RawSubject: p.old.RawSubject, NotBefore: from, NotAfter: to,
		SignatureAlgorithm: algorithm(p.old, p.ca)}
	for _, e := range p.old.Extensions {
		var err error
		switch {
		case e.Id.Equal(sctList), e.Id.Equal(poison), e.Id.Equal(authorityKeyID) && len(p.ca.SubjectKeyId) == 0:
			continue
		case e.Id.Equal(authorityKeyID):
			e.Value, err = asn1.Marshal(struct {
				ID []byte `asn1:"tag:0"`
			}{p.ca.SubjectKeyId})
		case e.Id.Equal(subjectKeyID):
			e.Value, err = keyID(pub)
		}
		if err != nil {
			return nil, err
		}
		t.ExtraExtensions = append(t.ExtraExtensions, e)
	}
	// Without this the library would add the authority's key identifier where the old leaf has none.
	parent := *p.ca
	parent.SubjectKeyId = nil
	return x509.CreateCertificate(random, t, &parent, pub, ca)
}

// algorithm keeps the one that was used where it is still fit, such as SHA-384 or PSS. Else the library
// chooses for the CA's key.
func algorithm(old, ca *x509.Certificate) x509.SignatureAlgorithm {
	fit := map[x509.PublicKeyAlgorithm][]x509.SignatureAlgorithm{
		x509.RSA: {x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA, x509.SHA256WithRSAPSS,
			x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS},
		x509.ECDSA:   {x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512},
		x509.Ed25519: {x509.PureEd25519},
	}
	if slices.Contains(fit[ca.PublicKeyAlgorithm], old.SignatureAlgorithm) {
		return old.SignatureAlgorithm
	}
	return x509.UnknownSignatureAlgorithm
}

// keyID is the value of the extension, made in the first way of RFC 5280 4.2.1.2, which is OpenSSL's.
func keyID(pub crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, err
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		return nil, err
	}
	sum := sha1.Sum(info.Key.RightAlign()) //nolint:gosec // it tells keys apart, it protects nothing
	return asn1.Marshal(sum[:])
}
