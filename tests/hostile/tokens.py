"""JSON Web Tokens, valid and invalid ones.

    {"claims": {...}}           signed with HS256 and the connection key
    "header": {...}             instead of {"alg": "HS256", "typ": "JWT"}; {} omits all fields
    "header_text", "claims_text"  text instead of JSON, used verbatim
    "sign": "HS256", "HS384", "HS512", "none" (an empty signature) or a text that is the signature
    "key": TEXT                 a key other than the correct one
    "padded": true              base64 with its padding
    "text": TEXT                the whole token

In claims "$now+60" is a time from now in seconds.
"""

import base64
import hashlib
import hmac
import json
import re
import time

KEY = "hostile-hmac-secret-of-32-bytes-or-more"
HASHES = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}


def token(parts) -> str:
    if "text" in parts:
        return parts["text"]
    header = parts.get("header", {"alg": "HS256", "typ": "JWT"})
    head = parts["header_text"] if "header_text" in parts else json.dumps(header)
    claims = parts["claims_text"] if "claims_text" in parts else json.dumps(timed(parts.get("claims", {})))
    padded = parts.get("padded", False)
    signed = f"{base64url(head.encode(), padded)}.{base64url(claims.encode(), padded)}"
    how = parts.get("sign", "HS256")
    if how == "none":
        return signed + "."
    if how not in HASHES:
        return f"{signed}.{how}"
    signature = hmac.new(parts.get("key", KEY).encode(), signed.encode(), HASHES[how]).digest()
    return f"{signed}.{base64url(signature, padded)}"


def timed(value):
    if isinstance(value, dict):
        return {key: timed(item) for key, item in value.items()}
    if isinstance(value, str) and (found := re.fullmatch(r"\$now([+-]\d+)", value)):
        return int(time.time()) + int(found[1])
    return value


def base64url(content, padded):
    text = base64.urlsafe_b64encode(content).decode()
    return text if padded else text.rstrip("=")
