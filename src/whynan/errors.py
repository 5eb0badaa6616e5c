class WhynanError(Exception): pass
class UsageError(WhynanError): pass
class MissingExtraError(WhynanError): pass
class NestedTraceError(WhynanError): pass
class MetaTensorError(WhynanError): pass
class NonFiniteError(WhynanError): pass
