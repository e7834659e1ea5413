"""The words of Service Bus, each once: addresses, annotations, dead letters, tokens, requests.

Error conditions have a module of their own, `conditions`. A guard test keeps both sets of words out of every
other module, so that the two sides of a conversation cannot drift apart.
"""

# -- addresses
DEAD_LETTER_QUEUE = "$DeadLetterQueue"
TRANSFER_DEAD_LETTER_QUEUE = f"$Transfer/{DEAD_LETTER_QUEUE}"
MANAGEMENT = "$management"
CBS = "$cbs"
#: By which an embedded namespace that has credits says how many, when a connection opens.
CREDITS = "pairbus:credits"

# -- messages
#: An empty message with this content type is judged like any other, then dropped.
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"

SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
PARTITION_KEY = "x-opt-partition-key"
VIA_PARTITION_KEY = "x-opt-via-partition-key"
LOCK_TOKEN = "x-opt-lock-token"
SEQUENCE_NUMBER = "x-opt-sequence-number"
ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
ENQUEUED_TIME = "x-opt-enqueued-time"
LOCKED_UNTIL = "x-opt-locked-until"
MESSAGE_STATE = "x-opt-message-state"
DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
#: What a queue alone says of a message: a sender's word on it is dropped, and it does not travel on.
POSTMARKS = frozenset(
    {
        SEQUENCE_NUMBER,
        ENQUEUED_SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        MESSAGE_STATE,
        DEAD_LETTER_SOURCE,
    }
)

#: Descriptors of the values that AMQP has no type for.
URI = "com.microsoft:uri"
TIMESPAN = "com.microsoft:timespan"
DATETIME_OFFSET = "com.microsoft:datetime-offset"

#: The rule that a subscription gets when it is created without one; it takes everything.
DEFAULT_RULE = "$Default"

# -- dead letters
#: Application properties of a dead letter.
REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
#: The service's own reasons.
EXPIRED = "TTLExpiredException"
TOO_MANY_DELIVERIES = "MaxDeliveryCountExceeded"

# -- links and requests
SESSION_FILTER = "com.microsoft:session-filter"
LOCKED_UNTIL_TICKS = "com.microsoft:locked-until-utc"
LINK_TIMEOUT = "com.microsoft:timeout"
#: Where the messages of a sender go in truth whose link is attached to another entity.
TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
BATCH_SIZE = "com.microsoft:max-message-batch-size"
#: What the name of every operation of `$management` begins with.
OPERATION_PREFIX = "com.microsoft:"
#: What an answer of `$management` says of itself.
STATUS = "statusCode"
STATUS_TEXT = "statusDescription"
STATUS_CONDITION = "errorCondition"
#: The operation of `$cbs`, and what its answer says of itself.
PUT_TOKEN = "put-token"
CBS_STATUS = "status-code"
CBS_STATUS_TEXT = "status-description"

# -- tokens
SAS_TOKEN = "servicebus.windows.net:sastoken"
